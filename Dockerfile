# The manager's image: one static binary, and nothing to run beside it.
#   docker build --build-arg VERSION=$(git describe --tags --always) -t REGISTRY/autohealer:TAG .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# What the manager is made of, and no more: a change of tests or documentation builds nothing anew.
COPY apis apis
COPY cmd cmd
COPY controllers controllers
COPY crds crds
COPY internal internal
COPY webhooks webhooks
ARG TARGETOS TARGETARCH
ARG VERSION=unknown
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /manager ./cmd

# Nothing beside it but authorities: by these it verifies Guardrails' witnesses, and servers of kubeconfigs that name none. The API server's CA is its
# service account's. config/manager runs it as 65532.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
