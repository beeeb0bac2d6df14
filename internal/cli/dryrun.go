package cli

import (
	"context"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dryRun is kubectl's flag for verbs that change something.
type dryRun struct{ *choice }

func dryRunFlag(cmd *cobra.Command) dryRun {
	d := dryRun{choiceFlag(cmd, "dry-run", "", "say what would be done, and change nothing; client only reads, and server has the API server judge each write, too", "none", "client", "server")}
	cmd.Flags().Lookup("dry-run").NoOptDefVal = "client"
	return d
}

// on: nothing is changed.
func (d dryRun) on() bool { return d.value != "none" }

// suffix of what is said to be done.
func (d dryRun) suffix() string {
	return map[string]string{"client": " (dry run)", "server": " (server dry run)"}[d.value]
}

// writes gives a client whose writes are as the flag wants them.
func (d dryRun) writes(c client.Client) client.Client {
	switch d.value {
	case "client":
		return reads{client.NewDryRunClient(c)}
	case "server":
		return client.NewDryRunClient(c)
	}
	return c
}

// reads is a client that only reads: what it is to create, patch or delete counts as written. It is over one of dry runs, so that another
// write changes nothing, either.
type reads struct{ client.Client }

// Create fails where there is such an object, as far as that can be read.
func (r reads) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	there, _ := o.DeepCopyObject().(client.Object)
	if err := r.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
		return client.IgnoreNotFound(err)
	}
	return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
}

// Patch does nothing.
func (reads) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

// Delete does nothing.
func (reads) Delete(context.Context, client.Object, ...client.DeleteOption) error { return nil }
