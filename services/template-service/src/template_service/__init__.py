"""Organization template: permissions, roles, organizations, members."""
