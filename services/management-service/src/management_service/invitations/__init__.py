"""Invitations: one-time secrets with which users choose their own passwords."""
