package replicaset

import (
	"testing"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// The tests of package replicas show that the laws hold.
func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }
