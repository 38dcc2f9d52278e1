"""What management-service told us: users, machine-to-machine applications, resources and their scopes.

A projection of its events in our own database, written by one replica at a time; nothing here is asked of another
service. Whoever is deleted there disappears from members and roles here, in the transaction that takes the event.
"""
