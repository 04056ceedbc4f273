package device

// MPSVariable is the environment variable with the folder through which a process reaches
// NVIDIA's Multi-Process Service.
const MPSVariable = "CUDA_MPS_PIPE_DIRECTORY"
