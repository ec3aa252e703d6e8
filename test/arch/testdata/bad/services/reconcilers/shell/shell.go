// Package shell opens doors that are not its own.
package shell

import (
	_ "github.com/millrace/millrace/pkg/events/stream" // want: the shell talks to interfaces
	_ "k8s.io/client-go/rest"                          // want: reconcilers have none & the shell talks to interfaces
)
