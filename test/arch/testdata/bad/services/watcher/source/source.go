// Package source is a door to one side, and opens the other one.
package source

import (
	_ "github.com/nats-io/nats.go" // want: only door to JetStream
	_ "k8s.io/client-go/kubernetes"
)
