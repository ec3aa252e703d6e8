//go:build tools

// Package prometheus pins Prometheus, in a module of its own because its
// dependencies are other versions than the services'.
package prometheus

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
)
