"""The pages of the documentation: their check, and what makes a site of them."""
