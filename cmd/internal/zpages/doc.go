// Package zpages has the content of /configz and /flagz, as kube-controller-manager serves them: the flags of a
// process as fields of KubeControllerManagerConfiguration, with the controllers that run, and the flags by
// name. Neither shows a password.
package zpages
