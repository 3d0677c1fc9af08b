# The base that the image is built in, by its full version. `make digests` writes its digest beside it.
ARG BASE=python:3.12.12-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# Two virtual environments without a pip of their own; the base's fills them. The first is the image's content,
# with a copy of the interpreter in place of a link; the second builds the package.
RUN python -m venv --without-pip --copies /opt/stellwerk && python -m venv --without-pip /opt/build
COPY requirements/run.lock requirements/build.lock requirements/
RUN python -m pip --python /opt/stellwerk install --no-cache-dir --no-compile --require-hashes --only-binary :all: \
        --requirement requirements/run.lock \
    && python -m pip --python /opt/build install --no-cache-dir --require-hashes --only-binary :all: \
        --requirement requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN /opt/build/bin/python -m hatchling build --target wheel --directory /wheels \
    && python -m pip --python /opt/stellwerk install --no-cache-dir --no-compile --no-deps --no-index /wheels/*.whl
COPY image image
RUN /opt/stellwerk/bin/python image/collect.py /image

# Nothing but what that script collects: no shell, no package manager, no other program.
FROM scratch
COPY --from=build /image /
ENV PATH=/opt/stellwerk/bin:/usr/local/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
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
