package command

import (
	"strings"
	"testing"
)

func TestStoreSizeFlag(t *testing.T) {
	var s storeSize
	if err := s.Set("15Gi"); err != nil || s != 15<<30 || s.String() != "15Gi" {
		t.Errorf("15Gi is %d, written as %s (%v)", s, s.String(), err)
	}
	for text, want := range map[string]string{"": "is no size", "all": "is no size", "-1Gi": "less than 256Mi", "1Mi": "less than 256Mi"} {
		if err := s.Set(text); err == nil || !strings.Contains(err.Error(), want) || s != 15<<30 {
			t.Errorf("%q is %d: %v", text, s, err)
		}
	}
	for _, name := range []string{"run", "bus"} {
		if subcommand(t, name).Flags().Lookup("nats-max-store") == nil {
			t.Errorf("%s has no such flag", name)
		}
	}
}
