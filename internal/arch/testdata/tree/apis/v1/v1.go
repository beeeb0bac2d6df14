package v1

import (
	_ "k8s.io/api/core/v1"
	_ "sigs.k8s.io/controller-runtime"

	_ "github.com/resourcestack/autohealer/internal/kube"
)
