package replicaset

import (
	"testing"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// That the laws hold is shown in package replicas.
func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }
