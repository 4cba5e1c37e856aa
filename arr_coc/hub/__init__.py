"""Hub: publish the Space, the weights with their card, and the rows of results."""
