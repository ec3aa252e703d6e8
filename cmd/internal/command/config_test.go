package command

import "testing"

func TestWhatFlagsTellControllers(t *testing.T) {
	for _, c := range []struct {
		endpoints, finished int
		wantFinished        int
		wrong               bool
	}{
		{100, 12500, 12500, false}, {1000, 0, -1, false}, {1, -5, -1, false}, {0, 1, 0, true}, {1001, 1, 0, true},
	} {
		o := newControllerOptions()
		o.endpoints, o.finished = c.endpoints, c.finished
		config, err := o.config()
		if (err != nil) != c.wrong {
			t.Errorf("with %d and %d: %v", c.endpoints, c.finished, err)
		}
		if err == nil && (config.EndpointsPerSlice != c.endpoints || config.TerminatedPods != c.wantFinished) {
			t.Errorf("%d and %d come to %+v", c.endpoints, c.finished, config)
		}
	}
}
