// @logto/api: a typed client of the Management API.
import { baseUrl, machineId, machineSecret, seen } from './conversation.mjs';
import { createManagementApi } from '@logto/api/management';

const { apiClient } = createManagementApi('default', { clientId: machineId, clientSecret: machineSecret, baseUrl });
const created = await apiClient.POST('/api/users', { body: { name: 'Grace Hopper' } });
const { id } = created.data;
const path = { params: { path: { userId: id } } };
const changed = await apiClient.PATCH('/api/users/{userId}', { ...path, body: { name: 'Rear Admiral Hopper' } });
const organization = await apiClient.POST('/api/organizations', { body: { name: 'Navy' } });
const members = { params: { path: { id: organization.data.id } } };
const added = await apiClient.POST('/api/organizations/{id}/users', { ...members, body: { userIds: [id] } });
const listed = await apiClient.GET('/api/organizations/{id}/users', members);
const token = await apiClient.POST('/api/subject-tokens', { body: { userId: id, context: { ticketId: 'T-1' } } });
const deleted = await apiClient.DELETE('/api/users/{userId}', path);
const missing = await apiClient.GET('/api/users/{userId}', path);

seen({
  name: changed.data.name,
  added: added.response.status,
  isMember: listed.data.map((member) => member.id === id),
  subjectToken: [token.response.status, Object.keys(token.data).sort(), token.data.expiresIn],
  deleted: deleted.response.status,
  missing: [missing.response.status, missing.error.code],
});
