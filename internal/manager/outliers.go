package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
	"github.com/resourcestack/autohealer/internal/probing/envoys"
	"github.com/resourcestack/autohealer/internal/xds"
)

// xdsService is the Service's name in config/.
const xdsService = "autohealer-xds"

// envoyOptions say whom the manager serves as xDS server.
type envoyOptions struct {
	address   string
	clientCA  string
	plaintext bool
	// clients are who may see which namespaces, by the names in their certificates.
	clients map[string]xds.Scope
	// ejectionsFrom are asked whom they have ejected.
	ejectionsFrom envoyServices
}

func addEnvoyFlags(flags *flag.FlagSet, o *envoyOptions) {
	flags.StringVar(&o.address, "xds-bind-address", "", "Where to serve Envoys their clusters, host:port. Default: nowhere.")
	flags.StringVar(&o.clientCA, "xds-client-ca", "",
		"File with the CAs that sign Envoys' certificates, in PEM; it is read for each connection. Without it Envoys are served in plaintext.")
	flags.Func("xds-client",
		"NAME=NAMESPACE[,NAMESPACE…]: an Envoy with this URI or DNS name in its certificate gets the clusters of these namespaces; * are all. Repeatable. "+
			"Nobody else gets anything.", o.addClient)
	flags.Func("ejections-from",
		"NAMESPACE/SERVICE/PORT: the ready endpoints of this Service are Envoys that are asked every 5s whom they have ejected, at their "+
			"--ejections-port; the status of OutlierPolicies reports it. PORT is the name or number of the Service's. Repeatable.", o.ejectionsFrom.add)
	flags.BoolVar(&o.plaintext, "xds-plaintext", false,
		"Serve without --xds-client-ca on other addresses than loopback, too: all who reach them get the endpoints of all Services that policies are for.")
}

// addClient reads one. The last = counts: a SPIFFE ID may have one in its path.
func (o *envoyOptions) addClient(value string) error {
	at := strings.LastIndexByte(value, '=')
	if at < 1 {
		return fmt.Errorf("%q is not NAME=NAMESPACE[,NAMESPACE…]", value)
	}
	name, scope := value[:at], xds.Scope{Namespaces: map[string]bool{}}
	for namespace := range strings.SplitSeq(value[at+1:], ",") {
		if namespace == "*" {
			scope.All = true
			continue
		}
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return fmt.Errorf("%q is neither a namespace's name nor *", namespace)
		}
		scope.Namespaces[namespace] = true
	}
	if o.clients == nil {
		o.clients = map[string]xds.Scope{}
	}
	if _, twice := o.clients[name]; twice {
		return fmt.Errorf("%s is there twice", name)
	}
	o.clients[name] = scope
	return nil
}

func (o envoyOptions) validate() error {
	if o.address == "" {
		return o.validateOff()
	}
	if len(o.ejectionsFrom) > 0 && o.clientCA == "" {
		return errors.New("--ejections-from needs --xds-client-ca: without certificates nobody knows who answers")
	}
	if _, _, err := net.SplitHostPort(o.address); err != nil {
		return fmt.Errorf("--xds-bind-address=%s must be host:port", o.address)
	}
	switch {
	case o.clientCA != "" && len(o.clients) == 0:
		return errors.New("--xds-client-ca needs --xds-client: else no Envoy may get anything")
	case o.clientCA == "" && len(o.clients) > 0:
		return errors.New("--xds-client needs --xds-client-ca: without certificates nobody knows who asks")
	case o.clientCA != "" && o.plaintext:
		return errors.New("--xds-plaintext and --xds-client-ca exclude each other")
	}
	return nil
}

// validateOff refuses what has no meaning where no Envoy is served.
func (o envoyOptions) validateOff() error {
	if o.clientCA != "" || o.plaintext || len(o.clients) > 0 {
		return errors.New("--xds-client-ca, --xds-client and --xds-plaintext are for --xds-bind-address")
	}
	if len(o.ejectionsFrom) > 0 {
		return errors.New("--ejections-from is for --xds-bind-address: else Envoys follow no OutlierPolicy")
	}
	return nil
}

// newOutliers keeps what OutlierPolicies are about, for reviews and for what is sent to Envoys.
func newOutliers(ctx context.Context, mgr ctrl.Manager, o options) (*outliers.Informers, error) {
	definition, err := definitions(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	routed := &outliers.Informers{
		Cache: mgr.GetCache(), Mapper: liveMapper{mgr.GetConfig(), mgr.GetHTTPClient()}, Definition: definition, OwnNamespace: o.namespace,
	}
	if err := routed.WatchCore(ctx); err != nil {
		return nil, err
	}
	if err := mgr.Add(routed); err != nil {
		return nil, fmt.Errorf("add the informers of routes: %w", err)
	}
	return routed, nil
}

// newClusters tells Envoys, while the cluster is ours; nil when nobody is to be served.
func newClusters(o envoyOptions, serving certificate, ours func() bool) (*actuate.Clusters, error) {
	if o.address == "" {
		return nil, nil
	}
	served := xds.Options{Address: o.address, Plaintext: o.plaintext, Serves: ours}
	if o.clientCA != "" {
		served.TLS = &xds.TLS{Certificate: current(serving), ClientCAs: o.readClientCA}
		served.Authorise = func(name string) (xds.Scope, bool) {
			scope, may := o.clients[name]
			return scope, may
		}
	}
	server, err := xds.NewServer(served)
	if err != nil {
		return nil, fmt.Errorf("--xds-bind-address: %w", err)
	}
	return &actuate.Clusters{Server: server}, nil
}

// current is the certificate that the webhook serves.
func current(serving certificate) func() (*tls.Certificate, error) {
	var config tls.Config
	serving.TLSConfig(&config)
	return func() (*tls.Certificate, error) { return config.GetCertificate(&tls.ClientHelloInfo{}) }
}

func (o envoyOptions) readClientCA() (*x509.CertPool, error) {
	text, err := os.ReadFile(o.clientCA)
	if err != nil {
		return nil, fmt.Errorf("--xds-client-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--xds-client-ca: there is no certificate in %s", o.clientCA)
	}
	return pool, nil
}

// envoyServices are whose endpoints are Envoys that are asked whom they have ejected.
type envoyServices []envoyService

type envoyService struct {
	types.NamespacedName
	port string
}

// add reads one.
func (all *envoyServices) add(value string) error {
	segments := strings.Split(value, "/")
	if len(segments) != 3 || segments[0] == "" || segments[1] == "" || segments[2] == "" {
		return fmt.Errorf("%q is not NAMESPACE/SERVICE/PORT", value)
	}
	*all = append(*all, envoyService{types.NamespacedName{Namespace: segments[0], Name: segments[1]}, segments[2]})
	return nil
}

// newEnvoyClient asks Envoys whom they have ejected; nil when none is to be asked.
func newEnvoyClient(o envoyOptions, routed *outliers.Informers, serving certificate) *envoys.Poller {
	if len(o.ejectionsFrom) == 0 {
		return nil
	}
	return &envoys.Poller{
		Clock: clock.RealClock{},
		Identity: envoys.Identity{
			Certificate: current(serving), EnvoyCAs: o.readClientCA,
			Scope: func(name string) (ejection.Scope, bool) {
				scope, may := o.clients[name]
				return ejection.Scope{All: scope.All, Namespaces: scope.Namespaces}, may
			},
		},
		Endpoints: func(ctx context.Context) ([]envoys.Endpoint, []string, error) {
			return o.ejectionsFrom.endpoints(ctx, routed.Hosts)
		},
	}
}

// endpoints are the Envoys behind the Services, and what leads to none.
func (all *envoyServices) endpoints(ctx context.Context, hosts func(context.Context, types.NamespacedName, string) ([]outlier.Host, error)) (found []envoys.Endpoint, missing []string, err error) {
	for _, s := range *all {
		ready, err := hosts(ctx, s.NamespacedName, s.port)
		switch {
		case errors.Is(err, outliers.ErrNoPort):
			missing = append(missing, err.Error())
		case err != nil:
			return nil, nil, err
		case len(ready) == 0:
			missing = append(missing, fmt.Sprintf("Service %s has no ready endpoints", s.NamespacedName))
		}
		for _, h := range ready {
			e := envoys.Endpoint{Name: s.Namespace + "/" + h.Pod, Address: net.JoinHostPort(h.Address, strconv.FormatUint(uint64(h.Port), 10))}
			if h.Pod == "" {
				e.Name = e.Address
			}
			found = append(found, e)
		}
	}
	return found, missing, nil
}

// definitions gives what watches a CustomResourceDefinition by its name.
func definitions(config *rest.Config, through *http.Client) (func(name string) toolscache.SharedIndexInformer, error) {
	reader, err := metadata.NewForConfigAndClient(config, through)
	if err != nil {
		return nil, fmt.Errorf("make the client of definitions: %w", err)
	}
	return func(name string) toolscache.SharedIndexInformer {
		return metadatainformer.NewFilteredMetadataInformer(reader, apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
			metav1.NamespaceNone, 0, toolscache.Indexers{}, func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			}).Informer()
	}, nil
}

// liveMapper asks the API server each time. The manager's mapper remembers a group's versions, and doesn't learn of one that the group
// gets later: a cluster with HTTPRoutes in v1 gets TCPRoutes in v1alpha2.
type liveMapper struct {
	config *rest.Config
	client *http.Client
}

// RESTMapping tells how a kind is served now.
func (m liveMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapper, err := apiutil.NewDynamicRESTMapper(m.config, m.client)
	if err != nil {
		return nil, fmt.Errorf("make a mapper: %w", err)
	}
	return mapper.RESTMapping(kind, versions...)
}
