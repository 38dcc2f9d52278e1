"""Organization permissions: named once in the template, granted by roles, carried as scopes by organization tokens."""
