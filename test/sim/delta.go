package sim

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
)

// deltaOf says a change as the watcher does.
func deltaOf(k kinds.Kind, c Change, now time.Time) events.Delta {
	d, err := translate.Object(k, c.Op, clone(c.Object).(runtime.Object), translate.Stamp{At: now})
	if err != nil {
		panic(fmt.Sprintf("an object of the toy API server cannot be said: %v", err))
	}
	return d
}
