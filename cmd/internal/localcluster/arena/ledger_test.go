package arena

import "testing"

func TestTheLedgerOfAnAPIServer(t *testing.T) {
	earlier, err := ledgerOf([]byte(`# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.5
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="pods",verb="POST"} 10
apiserver_request_total{code="200",resource="leases",verb="PUT"} 60
`))
	if err != nil {
		t.Fatal(err)
	}
	later, err := ledgerOf([]byte(`# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 4
# TYPE apiserver_watch_events_total counter
apiserver_watch_events_total{resource="pods"} 70
apiserver_watch_events_total{resource="nodes"} 7
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="pods",verb="POST"} 50
apiserver_request_total{code="200",resource="pods",subresource="status",verb="PATCH"} 2
apiserver_request_total{code="200",resource="pods",verb="LIST"} 9
apiserver_request_total{code="200",resource="pods",verb="WATCH"} 3
apiserver_request_total{code="200",resource="leases",verb="PUT"} 60
apiserver_request_total{code="201",resource="events",verb="POST"} 100
apiserver_request_total{code="200",resource="nodes",subresource="status",verb="PATCH"} 100
# TYPE apiserver_request_slo_total counter
apiserver_request_slo_total{verb="POST"} 7
`))
	if err != nil {
		t.Fatal(err)
	}
	since := later.Since(earlier)
	if since.Writes() != 42 || since.Asked() != 251 || since.Told != 77 || since.Processor != 2.5 {
		t.Errorf("%d writes, %d requests, %d told, %v s; want 42, 251, 77, 2.5", since.Writes(), since.Asked(), since.Told, since.Processor)
	}
	const want = "100 PATCH nodes/status 200, 100 POST events 201, 40 POST pods 201, 9 LIST pods 200, 2 PATCH pods/status 200"
	if got := since.String(); got != want {
		t.Errorf("told as %s\nwant %s", got, want)
	}
	if _, err := ledgerOf([]byte("apiserver_request_total{verb=\"PUT\"} many\n")); err == nil {
		t.Error("a count that is no number was accepted")
	}
}
