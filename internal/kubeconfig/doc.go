// Package kubeconfig turns a kubeconfig that a tenant wrote into safe access to one API server, or says why not. Of what
// kubeconfigs can say, only server, CA, server name and static credentials are taken over; everything that would run a
// program, read a file, weaken TLS or send the connection elsewhere is refused. Admission and controllers both ask here,
// so a kubeconfig that changes after admission is judged again before it is used.
package kubeconfig
