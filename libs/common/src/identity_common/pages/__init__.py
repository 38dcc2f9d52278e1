"""What pages of the services have in common: languages, rendering, cookies, and the tokens of the design."""
