// Command scaffold writes a new kind: all its parts, which work before anybody changes a line of them. It is what make scaffold runs;
// docs/development/adding-a-kind.md goes on from there.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	kind := flag.String("kind", "", "name of the kind, as in ConditionSet")
	scope := flag.String("scope", "", "Cluster or Namespaced")
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	if err := run(*root, *kind, *scope); err != nil {
		fmt.Fprintln(os.Stderr, "scaffold:", err)
		os.Exit(1)
	}
	fmt.Println("It works as it is. Go on with docs/development/adding-a-kind.md.")
}
