//go:build tools

// Package kwok pins kwok, in a module of its own because its dependencies are
// other versions than Kubernetes'.
package kwok

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
