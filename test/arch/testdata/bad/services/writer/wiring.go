// Package writer is wiring: it may hold a credential, but not use it.
package writer

import (
	"errors"

	_ "github.com/millrace/millrace/services/writer/plan"
	_ "k8s.io/client-go/kubernetes" // want: only doors to the API server
	_ "k8s.io/client-go/rest"
)

var errWrite = errors.New("failed to write") // want: says nothing
