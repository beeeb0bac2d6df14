package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/resourcestack/autohealer/internal/version"
)

func (a *App) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  kubectl autohealer version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.Out, version.Of(a.Version))
			return err
		},
	}
}
