package healthcheck_test

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
)

// extension gives the manager of an extension's program, for examples: it isn't started, and connects to nothing.
func extension() ctrl.Manager {
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://seed.example.org"}, ctrl.Options{
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kinds, nil },
	})
	if err != nil {
		panic(err)
	}
	return mgr
}
