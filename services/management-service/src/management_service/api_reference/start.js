"use strict";

const reference = document.getElementById("reference").dataset;

/** "Authorize" requests a token without naming an API; the token endpoint issues none for no API (RFC 8707). */
function nameTheManagementApi(request) {
  if (typeof request.body === "string") {
    const form = new URLSearchParams(request.body);
    if (form.get("grant_type") === "client_credentials" && !form.has("resource") && !form.has("organization_id")) {
      form.set("resource", reference.resource);
      request.body = form.toString();
    }
  }
  return request;
}

const ui = SwaggerUIBundle({
  url: reference.document,
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  tagsSorter: "alpha",
  requestInterceptor: nameTheManagementApi,
});
ui.initOAuth({ scopes: "all" });
