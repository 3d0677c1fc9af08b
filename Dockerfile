# One base for both stages, by its full version. `make digests` writes its digest beside it.
ARG BASE=python:3.12.12-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# The virtual environment is the image's content; it holds no pip, the base's own fills it.
RUN python -m venv --without-pip /opt/stellwerk
COPY requirements.lock ./
RUN python -m pip --python /opt/stellwerk install --no-cache-dir --require-hashes --only-binary :all: \
    --requirement requirements.lock
COPY requirements-dev.lock ./
RUN python -m pip install --no-cache-dir --require-hashes --only-binary :all: --requirement requirements-dev.lock
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
    && python -m pip --python /opt/stellwerk install --no-cache-dir --no-deps --no-index /wheels/*.whl \
    && python -m compileall -q /opt/stellwerk

FROM ${BASE}
# What installs packages is not needed to run, and would be of use to an intruder.
RUN python -m pip uninstall --yes --root-user-action ignore pip
COPY --from=build /opt/stellwerk /opt/stellwerk
ENV PATH=/opt/stellwerk/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Stellwerk" \
      org.opencontainers.image.description="A Kubernetes scheduler that decides as kube-scheduler does, and explains why" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.url="https://stellwerk.example" \
      org.opencontainers.image.documentation="https://stellwerk.example/docs" \
      org.opencontainers.image.source="https://stellwerk.example/source"
# By number, so that runAsNonRoot in a pod's security context can be checked.
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["stellwerk"]
CMD ["run"]
