package reconciletest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Ahead finds times after [Now] in a controller's view of an object. The last turns about the
// object were decided, noted and carried out by clocks an hour ahead, and received at Now. Ahead
// returns the paths of the times in the view, except for notes that the controller has not read. A
// wait from such a time would be an hour too long.
//
// Errors: as [Beliefs].
func Ahead(c reconcile.Any) (paths []string, err error) {
	own, key := standIn(c)
	w := NewWorld().Put(own.Kind, own.Object)
	ahead := Now.Add(time.Hour)
	for _, lane := range []events.Lane{events.LaneWrite, events.LaneStatus} {
		told := events.Outcome{
			Key: key, Lane: lane, UID: "u", ResourceVersion: "2", Turn: 9, Decided: ahead, At: ahead.Add(time.Second), Results: resultsOf(lane, ahead),
		}
		w.Remember(told.KnownBy(Now))
	}
	view, err := seen(c, w, key)
	if err != nil {
		return nil, err
	}
	var fields any
	if err := json.Unmarshal(view, &fields); err != nil {
		return nil, fmt.Errorf("read the view of %v: %w", key, err)
	}
	return after(fields, ""), nil
}

// after finds the times after [Now].
func after(value any, path string) (paths []string) {
	switch v := value.(type) {
	case map[string]any:
		delete(v, "note")
		for _, name := range sorted(v) {
			paths = append(paths, after(v[name], path+"."+name)...)
		}
	case []any:
		for i, item := range v {
			paths = append(paths, after(item, fmt.Sprintf("%s[%d]", path, i))...)
		}
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil && at.After(Now) {
			paths = append(paths, path)
		}
	}
	return paths
}
