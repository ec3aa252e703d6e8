// Command millrace is made of what it should be compared with.
package main

import (
	_ "k8s.io/client-go/tools/clientcmd"
	_ "k8s.io/kubernetes/pkg/controller" // want: what we are compared with
)

func main() {}
