//go:build tools

// Package compose pins Compose v2, in a module of its own because its dependencies
// are other versions than the services'.
package compose

import (
	_ "github.com/docker/compose/v2/cmd"
)
