# An image for each service, for provisioning and for the verifier process: docker build --target token-service .
# Packages come from the locks with hashes, our own only from this tree. The images have no pip and need no shell.
# slim.py removes what no process reads, and only imported modules have bytecode: that halves the size.

FROM python:3.13-slim AS build
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils >/dev/null
COPY locks/build.lock /locks/
RUN python -m venv /build \
 && /build/bin/python -m pip install --quiet --require-hashes --requirement /locks/build.lock \
 && python -m venv --without-pip /opt/stead
COPY deploy/images/slim.py /
ENV INSTALL="/build/bin/python -m pip --python /opt/stead/bin/python install --quiet --no-cache-dir --no-compile"

FROM python:3.13-slim AS sources
COPY Dockerfile /source/
COPY deploy/images /source/deploy/images
COPY locks /source/locks
COPY libs /source/libs
COPY services /source/services
RUN python /source/deploy/images/fingerprint.py >/fingerprint

FROM build AS wheels
COPY libs /source/libs
COPY services /source/services
RUN /build/bin/python -m pip wheel --quiet --no-index --no-build-isolation --no-deps --wheel-dir /wheels \
      /source/libs/sdk /source/libs/common /source/services/token-service /source/services/management-service \
      /source/services/template-service /source/services/console /source/services/provision /source/services/verifier

FROM build AS token-service-packages
COPY locks/token-service.lock /locks/
RUN $INSTALL --require-hashes --no-deps --requirement /locks/token-service.lock
COPY --from=wheels /wheels /wheels
RUN $INSTALL --no-index --no-deps /wheels/stead_sdk-* /wheels/stead_common-* /wheels/stead_token_service-* \
 && /opt/stead/bin/python /slim.py \
 && /opt/stead/bin/python -c "import token_service.app, identity_common.serving, uvloop, httptools"

FROM build AS management-service-packages
COPY locks/management-service.lock /locks/
RUN $INSTALL --require-hashes --no-deps --requirement /locks/management-service.lock
COPY --from=wheels /wheels /wheels
RUN $INSTALL --no-index --no-deps /wheels/stead_sdk-* /wheels/stead_common-* /wheels/stead_management_service-* \
 && /opt/stead/bin/python /slim.py \
 && /opt/stead/bin/python -c "import management_service.app, identity_common.serving, uvloop, httptools"

FROM build AS template-service-packages
COPY locks/template-service.lock /locks/
RUN $INSTALL --require-hashes --no-deps --requirement /locks/template-service.lock
COPY --from=wheels /wheels /wheels
RUN $INSTALL --no-index --no-deps /wheels/stead_sdk-* /wheels/stead_common-* /wheels/stead_template_service-* \
 && /opt/stead/bin/python /slim.py \
 && /opt/stead/bin/python -c "import template_service.app, identity_common.serving, uvloop, httptools"

FROM build AS console-packages
COPY locks/console.lock /locks/
RUN $INSTALL --require-hashes --no-deps --requirement /locks/console.lock
COPY --from=wheels /wheels /wheels
RUN $INSTALL --no-index --no-deps /wheels/stead_sdk-* /wheels/stead_common-* /wheels/stead_console-* \
 && /opt/stead/bin/python /slim.py \
 && /opt/stead/bin/python -c "import console.app, identity_common.serving, uvloop, httptools"

FROM build AS provision-packages
COPY locks/provision.lock /locks/
RUN $INSTALL --require-hashes --no-deps --requirement /locks/provision.lock
COPY --from=wheels /wheels /wheels
RUN $INSTALL --no-index --no-deps /wheels/stead_sdk-* /wheels/stead_common-* /wheels/stead_provision-* \
 && /opt/stead/bin/python /slim.py \
 && /opt/stead/bin/python -c "import provision.__main__"

FROM build AS verifier-packages
COPY locks/verifier.lock /locks/
RUN $INSTALL --require-hashes --no-deps --requirement /locks/verifier.lock
COPY --from=wheels /wheels /wheels
RUN $INSTALL --no-index --no-deps /wheels/stead_sdk-* /wheels/stead_common-* /wheels/stead_verifier-* \
 && /opt/stead/bin/python /slim.py \
 && /opt/stead/bin/python -c "import verifier.__main__, uvloop, httptools"

# Beyond the base: the packages, a user id without a name that owns nothing, and a hash of the sources.
FROM python:3.13-slim AS runtime
COPY --from=sources /fingerprint /opt/stead/
ARG VERSION=0.1.0
# The commit, and its time by RFC 3339: the same tree gives the same image.
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.vendor="Stead" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/stead/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /

FROM runtime AS token-service
LABEL org.opencontainers.image.title="stead-token-service" \
      org.opencontainers.image.description="Authorization server of Stead: token endpoint, sign-in, signing keys and directory"
COPY --from=token-service-packages /opt/stead /opt/stead
EXPOSE 8000
ENTRYPOINT ["python", "-m", "token_service"]
CMD ["serve", "--host", "0.0.0.0"]

FROM runtime AS management-service
LABEL org.opencontainers.image.title="stead-management-service" \
      org.opencontainers.image.description="Management API of Stead: users, applications, API resources, API roles and subject tokens"
COPY --from=management-service-packages /opt/stead /opt/stead
EXPOSE 8000
ENTRYPOINT ["python", "-m", "management_service"]
CMD ["serve", "--host", "0.0.0.0"]

FROM runtime AS template-service
LABEL org.opencontainers.image.title="stead-template-service" \
      org.opencontainers.image.description="Organization service of Stead: organization template, organizations and members"
COPY --from=template-service-packages /opt/stead /opt/stead
EXPOSE 8000
ENTRYPOINT ["python", "-m", "template_service"]
CMD ["serve", "--host", "0.0.0.0"]

FROM runtime AS console
LABEL org.opencontainers.image.title="stead-console" \
      org.opencontainers.image.description="Admin console of Stead: pages for administrators, as a client of its APIs"
COPY --from=console-packages /opt/stead /opt/stead
EXPOSE 8000
ENTRYPOINT ["python", "-m", "console"]
CMD ["serve", "--host", "0.0.0.0"]

FROM runtime AS provision
LABEL org.opencontainers.image.title="stead-provision" \
      org.opencontainers.image.description="Provisioning of Stead: who may do what in PostgreSQL, Redis and NATS, rendered and applied"
COPY --from=provision-packages /opt/stead /opt/stead
ENTRYPOINT ["python", "-m", "provision"]

FROM runtime AS verifier
LABEL org.opencontainers.image.title="stead-verifier" \
      org.opencontainers.image.description="Access-token verifier of Stead for reverse proxies: nginx, Caddy, Traefik and Envoy"
COPY --from=verifier-packages /opt/stead /opt/stead
EXPOSE 8000
ENTRYPOINT ["python", "-m", "verifier"]
CMD ["--host", "0.0.0.0"]
