"""How gradients or weights cross the network: strategies, their cost, and the link they use."""
