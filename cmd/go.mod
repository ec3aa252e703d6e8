module github.com/millrace/millrace/cmd

go 1.26.0

require (
	github.com/millrace/millrace/pkg/events v0.0.0
	github.com/millrace/millrace/services/reconcilers v0.0.0
	github.com/millrace/millrace/services/watcher v0.0.0
	github.com/millrace/millrace/services/writer v0.0.0
)

require (
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.10 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/sync v0.24.0 // indirect
	k8s.io/client-go v0.36.3 // indirect
	k8s.io/component-base v0.36.3 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
	sigs.k8s.io/yaml v1.6.0 // indirect
)

replace github.com/millrace/millrace/pkg/events => ../pkg/events

replace github.com/millrace/millrace/services/watcher => ../services/watcher

replace github.com/millrace/millrace/services/reconcilers => ../services/reconcilers

replace github.com/millrace/millrace/services/writer => ../services/writer
