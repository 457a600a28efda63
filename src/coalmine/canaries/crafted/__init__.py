"""Crafted canaries: data whose update, made by the real client, is seen well in a noisy sum of others (Maddock et al. 2023).

options       what a design is told, and the paper's recipe
objectives    what is minimised
ghost         inner products of gradients of dense layers, without the gradients
gradients     the same from whole gradients, for every other model
pool          mock clients that the design may look at
image, text   the search over pixels and over tokens
vectors       the updates of crafted canaries as directions
design        all of it: from a model to canaries and what they are worth

Only `image`, `text`, `ghost`, `gradients` and `objectives` use torch; the others load it when a design begins.
"""
