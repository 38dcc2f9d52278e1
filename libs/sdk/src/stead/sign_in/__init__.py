"""Applications that users sign in to: the client, its stored state, ID tokens, and the token endpoint."""
