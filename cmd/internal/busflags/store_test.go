package busflags

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

func TestStoreSizeFlag(t *testing.T) {
	var s StoreSize
	if err := s.Set("15Gi"); err != nil || s != 15<<30 || s.String() != "15Gi" {
		t.Errorf("15Gi is %d, written as %s (%v)", s, s.String(), err)
	}
	for text, want := range map[string]string{"": "is no size", "all": "is no size", "-1Gi": "less than 256Mi", "1Mi": "less than 256Mi"} {
		if err := s.Set(text); err == nil || !strings.Contains(err.Error(), want) || s != 15<<30 {
			t.Errorf("%q is %d: %v", text, s, err)
		}
	}
}

// TestRoomIsMadeOnOtherServers: only if --nats-max-store is set.
func TestRoomIsMadeOnOtherServers(t *testing.T) {
	server, err := embedded.Serve(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	b, err := stream.Connect(t.Context(), stream.Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if parts := StorePart(nil, b, 0); len(parts) > 0 {
		t.Errorf("%d parts where no size is said", len(parts))
	}
	parts := StorePart(nil, b, 1<<30)
	if len(parts) != 1 {
		t.Fatalf("%d parts, want one", len(parts))
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- parts[0].Run(ctx) }()
	eventually.True(t, time.Minute, "a metric says how much may be stored", func() bool {
		return metrictest.Collect(t, parts[0].Collectors...).Sum("millrace_bus_store_limit_bytes") == 1<<30
	})
	if stop(); <-ended != nil {
		t.Error("it does not end well")
	}
}
