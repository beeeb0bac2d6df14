package kube

import (
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/rest"

	_ "github.com/resourcestack/autohealer/cmd"
)
