package dependents_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/client-go/openapi"

	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

// documents are those of an API server.
type documents struct {
	byPath map[string]*document
	err    error
}

func (d *documents) PathsWithContext(context.Context) (map[string]openapi.GroupVersionWithContext, error) {
	paths := map[string]openapi.GroupVersionWithContext{}
	for path, of := range d.byPath {
		paths[path] = of
	}
	return paths, d.err
}

type document struct {
	text, hash string
	err        error
	reads      int
}

func (d *document) SchemaWithContext(context.Context, string) ([]byte, error) {
	d.reads++
	return []byte(d.text), d.err
}

func (d *document) ServerRelativeURL() string { return "/openapi/v3/apis/x?hash=" + d.hash }

var (
	gadgets    = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"}
	configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
)

// gadgetSchema has a Gadget whose size has a type, in a schema of its own.
func gadgetSchema(size string) string {
	return fmt.Sprintf(`{"openapi": "3.0.0", "paths": {"/x": {"get": {}}}, "components": {"schemas": {
		"org.example.v1.Gadget": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.org", "version": "v1", "kind": "Gadget"}],
			"properties": {"spec": {"default": {}, "allOf": [{"$ref": "#/components/schemas/Spec"}]}, "next": {"$ref": "#/components/schemas/org.example.v1.Gadget"}}},
		"Spec": {"type": "object", "properties": {"size": {"type": %q}}}}}}`, size)
}

const configMapSchema = `{"components": {"schemas": {"Null": null, "CM": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "ConfigMap"}],
	"properties": {"data": {"type": "object", "additionalProperties": {"type": "string"}}}}}}}`

func typeOfSize(t *testing.T, types map[schema.GroupVersionKind]*decl.DeclType) string {
	t.Helper()
	if types[gadgets] == nil {
		t.Fatal("there is no type")
	}
	return types[gadgets].Fields["spec"].Type.Fields["size"].TypeName()
}

func TestTypesAreThoseOfTheDocuments(t *testing.T) {
	gadget, core := &document{text: gadgetSchema("string"), hash: "1"}, &document{text: configMapSchema, hash: "1"}
	server := &documents{byPath: map[string]*document{"apis/example.org/v1": gadget, "api/v1": core}}
	schemas := dependents.NewSchemas(server)
	unserved, unknown := schema.GroupVersionKind{Group: "nobody.example.org", Version: "v1", Kind: "Nothing"}, gadgets.GroupVersion().WithKind("Other")
	ask := func() map[schema.GroupVersionKind]*decl.DeclType {
		types, err := schemas.Types(t.Context(), []schema.GroupVersionKind{gadgets, configMaps, unserved, unknown})
		if err != nil {
			t.Fatal(err)
		}
		return types
	}
	first := ask()
	if size := typeOfSize(t, first); size != "string" || first[configMaps].Fields["data"].Type.ElemType.TypeName() != "string" || first[gadgets].Fields["next"].Type != decl.DynType {
		t.Errorf("the types are %v", first)
	}
	if first[unserved] != nil || first[unknown] != nil {
		t.Error("what isn't in a document has a type")
	}

	t.Log("it is read once")
	if again := ask(); again[gadgets] != first[gadgets] || gadget.reads != 2 || core.reads != 1 {
		t.Errorf("the documents were read %d and %d times", gadget.reads, core.reads)
	}

	t.Log("another content has another hash")
	gadget.text, gadget.hash = gadgetSchema("integer"), "2"
	if size := typeOfSize(t, ask()); size != "int" {
		t.Errorf("size is a %s", size)
	}

	t.Log("what can't be read keeps nobody from the others")
	gadget.hash, gadget.err = "3", errors.New("no")
	types, err := schemas.Types(t.Context(), []schema.GroupVersionKind{gadgets, configMaps})
	if err == nil || types[gadgets] != nil || types[configMaps] == nil {
		t.Errorf("the types are %v: %v", types, err)
	}
	server.err = errors.New("no")
	if types, err := schemas.Types(t.Context(), []schema.GroupVersionKind{configMaps}); err == nil || types != nil {
		t.Errorf("the types are %v: %v", types, err)
	}
	if _, err := schemas.Types(t.Context(), nil); err != nil {
		t.Errorf("of no kinds it was asked: %v", err)
	}
}

func TestTypesTellWhatFailsAndWhatIsUndefined(t *testing.T) {
	const spec = onWorkers + `checks: [{name: mcm, conditionType: EveryNodeReady, object: {apiVersion: example.org/v1, kind: Gadget, name: "'g'"}, evaluate: {cel: {healthy: object.spec.size > 1, message: object.spec.weight}}}]`
	schemas := dependents.NewSchemas(&documents{byPath: map[string]*document{"apis/example.org/v1": {text: gadgetSchema("string"), hash: "1"}}})
	types, err := schemas.Types(t.Context(), []schema.GroupVersionKind{gadgets})
	if err != nil {
		t.Fatal(err)
	}
	forecast, _ := tell(t, &objects{types: types}, spec)
	if want := []string{"check mcm: cel.healthy: > can't be applied to (string, int); convert one of them, as by string() or int(), or write another"}; !slices.Equal(forecast.TypeErrors, want) {
		t.Errorf("type errors are %q", forecast.TypeErrors)
	}
	if want := []string{"check mcm: cel.message: example.org/v1 Gadget.spec has no field weight"}; !slices.Equal(forecast.UndefinedFields, want) {
		t.Errorf("undefined are %q", forecast.UndefinedFields)
	}
	if forecast.Items.Untyped != nil {
		t.Errorf("types aren't known: %v", forecast.Items.Untyped)
	}
	if forecast, _ := tell(t, &objects{types: types, untyped: errors.New("no")}, spec); len(forecast.TypeErrors) != 1 || !errors.Is(forecast.Items.Untyped, guard.ErrNotKnown) {
		t.Errorf("where one can't be told, of the others it is: %q, %v", forecast.TypeErrors, forecast.Items.Untyped)
	}
	if forecast, _ := tell(t, &objects{}, spec); len(forecast.TypeErrors)+len(forecast.UndefinedFields) > 0 {
		t.Errorf("nothing is known of the kinds, and this is told: %q, %q", forecast.TypeErrors, forecast.UndefinedFields)
	}
}
