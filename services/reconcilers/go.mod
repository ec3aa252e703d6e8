module github.com/millrace/millrace/services/reconcilers

go 1.26.0

require github.com/millrace/millrace/pkg/events v0.0.0

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/tools v0.52.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
	sigs.k8s.io/yaml v1.6.0 // indirect
)

replace github.com/millrace/millrace/pkg/events => ../../pkg/events
