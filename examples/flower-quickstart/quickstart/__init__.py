"""A character model on chats, trained by Flower with differential privacy, and audited."""
