//go:build tools

// Package jaeger pins Jaeger, in a module of its own because its dependencies are
// other versions than the services'.
package jaeger

import (
	_ "github.com/jaegertracing/jaeger/cmd/jaeger"
)
