"""Zhang & Psounis (2024), "Differentially private federated learning without noise addition: when is it possible?"

mnist     users with MNIST's images, and gradients of a softmax model in closed form
cnn       the same users with a small convolutional network
aimed     canaries aimed at directions of a known covariance, and their scores
secagg_*  the experiments, one file each
"""
