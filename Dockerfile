# The image of Trimtab, and its variant `slim` without Java, for Spark on a Connect server:
#   docker build -t localhost/trimtab:0.1.0 .
#   docker build -t localhost/trimtab:0.1.0-slim --target slim .
# Every step is a script of image/ (image/README.md).
# Behind a proxy with a certificate of its own, or with an index of your own (neither is kept in the image):
#   docker build --secret id=pip,src=pip.conf --secret id=ca,src=ca.crt .
ARG BASE=debian:trixie-slim

FROM ${BASE} AS base
RUN --mount=type=bind,source=image,target=/build sh /build/base.sh

FROM base AS java
RUN --mount=type=bind,source=image,target=/build sh /build/java.sh

FROM base AS python
ARG SOURCE_DATE_EPOCH=1767225600
RUN --mount=type=bind,source=image,target=/build \
    --mount=type=bind,target=/src \
    --mount=type=cache,target=/var/cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    sh /build/python.sh run

FROM base AS python-slim
ARG SOURCE_DATE_EPOCH=1767225600
RUN --mount=type=bind,source=image,target=/build \
    --mount=type=bind,target=/src \
    --mount=type=cache,target=/var/cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    sh /build/python.sh slim

FROM base AS runtime
ENV LANG=C.UTF-8
ENV PYTHONDONTWRITEBYTECODE=1
ENV PYTHONUNBUFFERED=1
LABEL org.opencontainers.image.title="Trimtab"
LABEL org.opencontainers.image.description="A Kubernetes operator that keeps the brokers of a bundle-sharded messaging cluster evenly loaded"
LABEL org.opencontainers.image.version="0.1.0"
LABEL org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /tmp
ENTRYPOINT ["trimtab"]

FROM runtime AS slim
COPY --from=python-slim /opt/trimtab /opt/trimtab
ENV PATH=/opt/trimtab/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 10001:10001

FROM runtime
COPY --from=java /opt/java /opt/java
COPY --from=python /opt/trimtab /opt/trimtab
ENV PATH=/opt/trimtab/bin:/opt/java/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENV JAVA_HOME=/opt/java
# The archive of classes lies at the address that it was written for. At a random one, the JVM changes half of its pages.
ENV SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=/opt/cache/spark.jsa -Xlog:cds=off -Xlog:cds+dynamic=off \
    -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
RUN --mount=type=bind,source=image,target=/build sh /build/warm.sh
USER 10001:10001
