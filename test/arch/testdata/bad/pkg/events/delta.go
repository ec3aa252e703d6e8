// Package events breaks the law of the vocabulary.
package events

import (
	"context" // want: never cancelled

	corev1 "k8s.io/api/core/v1"

	"github.com/nats-io/nats.go" // want: only door to JetStream & everything speaks the vocabulary
)

// Publish has no business here.
func Publish(context.Context, *nats.Conn, corev1.Pod) {}
