// Package docs is where the project's pages are on the web: who reads a message seldom has the repository.
package docs

const (
	// Project is the project itself.
	Project = "https://github.com/resourcestack/autohealer"
	// Base of a page's path in the repository, such as docs/how-to/install.md.
	Base = Project + "/blob/main/"
)
