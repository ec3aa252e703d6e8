// Package controllerflags has the flags that select the controllers and configure them, with the names,
// defaults and checks of kube-controller-manager. [Options] becomes the configuration of the controllers, and
// a [Choice] of those that act and those in shadow. A flag that has no effect here is a [Moot].
package controllerflags
