module github.com/millrace/millrace/test

go 1.26.0

require (
	github.com/millrace/millrace/cmd v0.0.0
	github.com/millrace/millrace/pkg/events v0.0.0
	github.com/millrace/millrace/services/reconcilers v0.0.0
	github.com/millrace/millrace/services/watcher v0.0.0
	github.com/millrace/millrace/services/writer v0.0.0
)

require (
	gopkg.in/evanphx/json-patch.v4 v4.13.0 // indirect
	k8s.io/api v0.36.3 // indirect
	k8s.io/apimachinery v0.36.3 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

replace github.com/millrace/millrace/pkg/events => ../pkg/events

replace github.com/millrace/millrace/services/watcher => ../services/watcher

replace github.com/millrace/millrace/services/reconcilers => ../services/reconcilers

replace github.com/millrace/millrace/services/writer => ../services/writer

replace github.com/millrace/millrace/cmd => ../cmd
