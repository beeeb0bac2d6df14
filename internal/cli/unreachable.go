package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/utils/ptr"
)

// reaching is what an error says, with the API server that can't be reached, and how to ask another, in place of the request's URL.
func (a *App) reaching(err error) string {
	says := err.Error()
	failed, isRequest := errors.AsType[*url.Error](err)
	if !isRequest {
		return says
	}
	cfg, noCluster := a.Config.ToRESTConfig()
	asked, _ := url.Parse(failed.URL)
	if noCluster != nil || asked == nil {
		return says
	}
	server, _ := url.Parse(cfg.Host)
	raw, unreadable := a.Config.ToRawKubeConfigLoader().RawConfig()
	if server == nil || server.Host != asked.Host || unreadable != nil {
		return says
	}
	instead := fmt.Sprintf("can't reach the API server %s of context %q: %v (kubectl config get-contexts lists others; --context takes one)",
		cfg.Host, cmp.Or(ptr.Deref(a.Config.Context, ""), raw.CurrentContext), failed.Err)
	switch {
	case ptr.Deref(a.Config.APIServer, "") != "":
		instead = fmt.Sprintf("can't reach the API server %s of --server: %v", cfg.Host, failed.Err)
	case len(raw.Clusters) == 0:
		instead = fmt.Sprintf("no kubeconfig names a cluster, and there is no API server at %s: %v (set KUBECONFIG, or give --kubeconfig)", cfg.Host, failed.Err)
	}
	return strings.Replace(says, failed.Error(), instead, 1)
}
