"""Errors that a client sees, each with its HTTP status and machine-readable code."""

from typing import ClassVar


class VoxserveError(Exception):
    """Base of every error that may reach a client.

    `message` is shown to the client, so it holds the offending value and the limit and never a
    path or a traceback. `param` names the request field, `retry_after_s` becomes `Retry-After`.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: str = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.code
        self.retry_after_s = retry_after_s


class InvalidRequestError(VoxserveError):
    """A field is missing, out of range, or not supported by the loaded model (400)."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_parameter"


class AuthenticationError(VoxserveError):
    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class ForbiddenError(VoxserveError):
    """Who asks is known, but may not (403)."""

    status = 403
    type = "permission_error"
    code = "forbidden"


class NotFoundError(VoxserveError):
    status = 404
    type = "invalid_request_error"
    code = "route_not_found"


class MethodNotAllowedError(VoxserveError):
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class BodyTimeoutError(VoxserveError):
    status = 408
    type = "timeout_error"
    code = "body_timeout"


class ConflictError(VoxserveError):
    status = 409
    type = "invalid_request_error"
    code = "duplicate_request_id"


class BodyTooLargeError(VoxserveError):
    status = 413
    type = "invalid_request_error"
    code = "body_too_large"


class UnsupportedMediaTypeError(VoxserveError):
    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class RateLimitError(VoxserveError):
    """The client has as much of the server as it may have at once (429)."""

    status = 429
    type = "rate_limit_error"
    code = "too_many_connections"


class GenerationError(VoxserveError):
    """The request itself failed in a launch; its neighbours go on (500)."""

    status = 500
    code = "generation_failed"


class UnavailableError(VoxserveError):
    """The server cannot take the request now: overloaded, starting, draining, restarting (503)."""

    status = 503
    code = "overloaded"


class TimeoutExceededError(VoxserveError):
    status = 504
    type = "timeout_error"
    code = "generation_timeout"


class CheckpointError(VoxserveError):
    """A checkpoint is missing, incomplete or of an unknown kind. Seen at start, not by clients."""

    code = "checkpoint_invalid"
