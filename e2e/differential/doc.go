// Package differential asks four judges about the same random objects, and wants one verdict: the API server with its
// schemas and the generated policies, the webhook that the manager serves, the engine, and the CLI with the object in a file.
package differential
